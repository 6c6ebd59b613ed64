#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/commands.hpp"
#include "apps/python_set.hpp"
#include "run/builtin.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

// models/export/command_line.py declares these options. tests/apps/model_test.py compares the two lists.
constexpr const char* help =
    "Usage: millrace model WEIGHTS [SEGMENTER] [options]\n"
    "       millrace model NET.ts [NET.ts ...] --task semantic --roi SIDE [options]\n"
    "       millrace model FOLDER --task semantic [options]\n"
    "       millrace model NET.ts --task classify|regress --imgsz SIDE [options]\n"
    "\n"
    "Converts published weights into model packages, compares each package with the original model, and prints the\n"
    "`millrace run` command for them. WEIGHTS is a detector, a segmenter or a classifier. With two files, one is a\n"
    "detector and one a segmenter, in any order. yolov8n.pt becomes yolov8n.pkg, next to the file.\n"
    "\n"
    "  --out FOLDER       folder for the packages; default: that of the weights\n"
    "  --photograph FILE  picture for the comparison with the original; default: one drawn from a seed\n"
    "  --imgsz N | H W    detectors, classify, regress: side of the input, or height and width; default of detectors:\n"
    "                     that of the training\n"
    "  --names FILE       names of the classes or values, one per line; default: COCO's (YOLO in ONNX), ImageNet's\n"
    "                     (classifier)\n"
    "  --preset V1|V2     classifier: preprocessing of the training; default: that of the file, or V1\n"
    "  --task semantic    WEIGHTS is TorchScript that gives a value for each pixel, for windows of a large picture,\n"
    "                     the folder or a checkpoint of a trained model of nnU-Net v2, or that of a MONAI bundle\n"
    "  --task classify    WEIGHTS is TorchScript that gives a logit or a probability of each class for a picture\n"
    "  --task regress     WEIGHTS is TorchScript that gives numbers for a picture, such as an age\n"
    "  --trust            load a pickle that contains more than weights and known classes; it may run commands\n"
    "  --traceback        show the Python traceback of an unexpected error\n"
    "  --help             print this text and exit\n"
    "\n"
    "With --task classify or regress, also --colour, --scale, --mean, --std, and for classify --activation, as below:\n"
    "  --shorter-side N   the shorter side of a picture becomes N pixels, and the centre is cut out; default: the "
    "picture\n"
    "                     is stretched to the input\n"
    "\n"
    "With --task semantic:\n"
    "  --roi N | H W      side of a window, or height and width; of volumes three sides\n"
    "  --axes xyz|zyx     order of the axes of volumes, as the model takes them; default: xyz\n"
    "  --orientation RAS  directions of the axes x, y and z, to which volumes are turned; default: those of the file\n"
    "  --spacing X Y Z    sides of a voxel in mm, to which volumes are resampled; 0 and default: that of the file\n"
    "  --scale-first      with --spacing, volumes are scaled before they are resampled\n"
    "  --mpp X            micrometres a pixel, to which slides are resampled; default: those of the file\n"
    "  --activation WORD  softmax, sigmoid or none; default: softmax, or sigmoid for one channel or class\n"
    "  --heatmaps         the channels are heatmaps: a run finds their maxima; default of --activation: none\n"
    "  --threshold X      with sigmoid or none, values above it belong to the class; default for one channel: 0.5\n"
    "  --colour rgb|bgr   order of the channels; default: rgb\n"
    "  --channels N       pictures have N channels with the values of the file; default: RGB of 8 bits.\n"
    "                     A volume has N volumes of a NIfTI; default: 1\n"
    "  --scale X          a value v becomes (v * scale - mean) / std; default: 1/255, volumes 1,\n"
    "                     pictures with --channels none\n"
    "  --mean X ...       for all channels, or for each; default: 0\n"
    "  --std X ...        for all channels, or for each; default: 1\n"
    "  --clip X X         lowest and highest value; others are limited to them before scale, mean and std\n"
    "  --zscore WORD      in place of scale, mean and std: those of the item's own values (all), of those that are\n"
    "                     not zero (nonzero), or of those in the box of these (nonzero_box)\n"
    "  --percentiles X X  in place of scale, mean and std: these percentiles of the item's values become 0 and 1\n"
    "  --clip-to-percentiles\n"
    "                     values below and above the percentiles become 0 and 1\n"
    "  --channel-wise     statistics of each channel\n"
    "  --channel KEY=VALUE ...\n"
    "                     in place of --channels and the options from --scale on, once for each channel of the file:\n"
    "                     clip=LOW,HIGH scale=X mean=X std=X, zscore=WORD, or percentiles=X,X\n"
    "                     clip_to_percentiles=yes; default: scale=1 mean=0 std=1. With --colour, three channels are\n"
    "                     the planes of RGB or BGR\n"
    "  --mean-of WORD     of several files, the mean of their logits or of their probabilities; default: logits\n"
    "\n"
    "With --task semantic, several files are an ensemble: the package has the mean of what they find, and the name\n"
    "of the first file. The folds in a folder of nnU-Net are one, too. Its plan has all of these options but\n"
    "--mean-of. A MONAI bundle has all of them, and --trust also runs the Python expressions in it.\n"
    "\n"
    "With two files, --imgsz and --names are for the detector. Put -- before a file whose name begins with a dash.\n"
    "\n"
    "The exporters run in the Python set (5.7 GB); if it is missing, a message shows the command that installs it.\n"
    "MILLRACE_DEPS=FOLDER is the folder of that set, MILLRACE_PYTHON=FILE another interpreter.\n"
    "\n"
    "Exit codes:\n"
    "  0    done\n"
    "  1    a package differs from its original: please report it\n"
    "  2    wrong use\n"
    "  5    a problem with the weights, or the Python set is missing\n"
    "  6    writing failed\n"
    "  130  stopped by Ctrl-C\n"
    "  143  stopped by SIGTERM\n";

}  // namespace

ExitCode model_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(help, stdout);
    return ExitCode::ok;
  }
  if (arguments.empty())
    throw UsageError("`millrace model` needs a file with weights: `millrace model yolov8n.pt [mobile_sam.pt]`");
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(),
                                 find_data("configs", "configs", "detect.yaml")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  run_in_python_set("model.py", words);
}

}  // namespace millrace
